"""The document of `node-classes check`: whether machines are what their classes say."""
