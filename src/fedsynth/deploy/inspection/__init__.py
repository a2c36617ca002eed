"""An inspection over sites: a list of runs through the one server job."""
