"""Many images or repositories, judged at once; each layer and wheel is read once.

In: registries, lists, clusters or repositories, and settings for the workers.
Out: a `reports.fleet.FleetReport`, and JSON Lines as results arrive.
`subjects` and `repositories` list the fleet. `work` and `auditing` have the steps of a worker,
which saves its results in the store shared by all workers. `cluster` passes the work to Dask, and
`run` combines the answers.
"""
