"""What estimators need of fits, with the module that defines it."""

from bochner.models._learning import learn_errors as learn_errors
from bochner.models.ridge.fit import RidgeFit as RidgeFit
from bochner.models.ridge.fit import Route as Route
from bochner.models.ridge.fit import fit_ridge as fit_ridge
from bochner.models.ridge.fit import solved_again as solved_again
from bochner.models.ridge.fit import with_rows_of as with_rows_of
