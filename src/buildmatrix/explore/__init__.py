"""The terminal browser: a SOURCE by layer, distribution, library and vendor.

In: facts of a SOURCE, judged for a backend if one is known.
Out: screens of Textual; nothing is written.
`reading` collects the data, `views` and `details` make rows and texts, `model` has their lines, and
`app` and `widgets` draw them.
"""
