"""Staged checks of images on their node class: import, device, compute, memory, cold start.

In: images, the node class of this machine or pod logs of a cluster, and a baseline.
Out: a `reports.preflight.Preflight` with the checks of each rung.
`run` and `rungs` run the checks here, `manifests` and `cluster` in pods. `probes` are the programs
that run in images; `machine` has the devices of this machine.
"""
