"""The training rows of a fit, in the forms in which they are solved."""
