"""Variables by which the command of a site tells its processes about this machine; no message can change them."""

SITE_FILE = "FEDSYNTH_SITE"  # the site.toml
NOTICES = "FEDSYNTH_NOTICES"  # a file whose lines the site's command prints
METRICS_PORT = "FEDSYNTH_METRICS_PORT"
