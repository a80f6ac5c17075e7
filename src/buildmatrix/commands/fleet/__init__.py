"""`fleet`: many images or repositories, judged at once, each layer and each wheel once.

The way of the data: `subjects` says what is in the fleet; `work` holds what a worker does (a
reference resolved, a layer read, an image judged), and keeps what it learned in the store that all
workers share; `cluster` hands that work to Dask; `run` puts the answers together.
"""
