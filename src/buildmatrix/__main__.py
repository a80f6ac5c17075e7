"""`python -m buildmatrix`."""

from buildmatrix.cli import main

if __name__ == "__main__":
    main()
