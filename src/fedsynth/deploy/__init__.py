"""Runs over sites: the link to them, the site itself, the engine beneath, the server's job and the coordinator."""
