"""The project's own scripts; nothing here is part of the installed tool."""
