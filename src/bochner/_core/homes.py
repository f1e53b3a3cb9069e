"""Which module makes the passes over rows that an engine holds; the package fills it in.

Engines are above all parts that fit: these find them here, by name, and know none.
"""

#: Modules by the library that holds rows; each has ``here()``, which returns its engine.
ENGINES: dict[str, str] = {}
