"""From a request to a trained generator, and from a generator to tables and images."""
