"""`python -m inferno`: serve on port 8080."""

import os

import uvicorn

if __name__ == "__main__":
    uvicorn.run("inferno.server:app", host="0.0.0.0", port=int(os.environ.get("PORT", "8080")))
