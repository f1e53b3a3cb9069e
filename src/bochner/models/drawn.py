"""Base class of displays: drawn as in scikit-learn, shown by notebooks as a picture."""

from base64 import b64encode
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Self

from bochner._core.html import HtmlPart, Image, ShownResult, Words
from bochner._core.text import axes_for


class Display(ShownResult):
    """Numbers that can be drawn: ``plot`` returns the display, with ``ax_`` and ``figure_``."""

    def plot(self, ax: Any = None) -> Self:
        """Draw on these axes, or on new ones."""
        raise NotImplementedError

    def _axes(self, ax: Any) -> Any:
        """Return the axes to draw on, and remember them: the last ones that were drawn on."""
        given, ax = ax is not None, axes_for(type(self).__name__, ax)
        object.__setattr__(self, "_last", (ax, given))
        return ax

    @property
    def _drawn_on(self) -> tuple[Any, bool]:
        """The axes of the last ``plot``, and whether the caller gave them; drawn now if never."""
        if "_last" not in self.__dict__:
            self.plot()
        last: tuple[Any, bool] = self.__dict__["_last"]
        return last

    @property
    def ax_(self) -> Any:
        """The axes that it was last drawn on, as in scikit-learn; drawn now if never."""
        return self._drawn_on[0]

    @property
    def figure_(self) -> Any:
        """The figure of these axes, as in scikit-learn."""
        return self.ax_.figure

    def _picture(self) -> Iterator[HtmlPart]:
        """Yield the picture if it has its own axes; a caller who passed axes shows the figure."""
        if find_spec("matplotlib") is None:
            yield Words(f"{type(self).__name__}: drawn by matplotlib, which is not installed here.")
        elif not self._drawn_on[1]:
            yield Image(svg_of(self.figure_), _title(self.ax_) or type(self).__name__)
        else:
            yield Words(f"{type(self).__name__}, drawn on the axes that were given.")

    def _shown(self) -> Iterator[HtmlPart]:
        return self._picture()

    @property
    def _asked_for(self) -> bool:
        """Whether ``plot`` was called."""
        return "_last" in self.__dict__


def _title(ax: Any) -> str:
    """Return what a picture shows, for those who do not see it."""
    names = [ax.get_ylabel(), ax.get_xlabel()]
    return " against ".join(filter(None, names))


def svg_of(figure: Any) -> str:
    """Return a figure as the address of a picture that holds it."""
    file = BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(file.getvalue()).decode('ascii')}"
