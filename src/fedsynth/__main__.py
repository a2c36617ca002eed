"""`python -m fedsynth`: the command line, where scripts of the environment are not on the path."""

from fedsynth.cli.main import main

if __name__ == "__main__":
    main()
