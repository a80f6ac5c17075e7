"""`POST /classify {"pixels": [[64 values], ...]}` → `{"digits": [...]}`; `GET /health`."""

from __future__ import annotations

from functools import cache

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from inferno.backends import load
from inferno.model import PIXELS, Classifier


@cache
def classifier() -> Classifier:
    """One per process, made by the first request: a device may come up after the server."""
    return Classifier(load())


def health(_: Request) -> JSONResponse:
    """The device, once the backend could be opened."""
    return JSONResponse({"device": classifier().backend.device()})


async def classify(request: Request) -> JSONResponse:
    """Digits of a batch."""
    try:
        pixels = np.asarray((await request.json())["pixels"], np.float32)
    except (ValueError, KeyError, TypeError):
        pixels = np.empty(0, np.float32)
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        return JSONResponse({"error": f"send pixels as rows of {PIXELS} numbers"}, 422)
    return JSONResponse({"digits": classifier().classify(pixels)})


app = Starlette(routes=[Route("/health", health), Route("/classify", classify, methods=["POST"])])
