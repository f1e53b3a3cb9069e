"""What estimators need of fits, with the module that defines it."""

from bochner.models.ridge.fit import RidgeFit as RidgeFit
from bochner.models.ridge.fit import add_rows as add_rows
from bochner.models.ridge.fit import fit_features as fit_features
from bochner.models.ridge.fit import warn as warn
from bochner.models.route import process as process
from bochner.models.route import represent as represent
from bochner.models.route import ridge_rows as ridge_rows
