"""`fleet`: judge many images or repositories at once, reading each layer and wheel once.

The data flow: `subjects` lists the fleet; `work` has the steps of a worker (resolve a reference,
read a layer, judge an image), which saves its results in the store shared by all workers; `cluster`
passes the work to Dask; `run` combines the answers.
"""
