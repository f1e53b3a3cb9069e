"""Engines, for ``where=`` of ``fit_blocks``: where the passes of a fit are computed.

>>> import bochner as bo
>>> bo.engines.Local(checkpoint="run.ckpt", interval=60)
Local(checkpoint='run.ckpt', interval=60.0, cache_bytes=None, device=None)

A pass is a sum over rows. Its parts are merged in an order that depends only on the blocks: any
engine, with any number of workers, gives the bits of :class:`Local` on the same blocks.
"""

from bochner._core.optional import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__spec__)
