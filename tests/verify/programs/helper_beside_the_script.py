import sys

NAME = "helper"

if __name__ == "__main__":
    print(NAME, sys.argv[1:], sys.path[0])
