"""The deployed process of a TaskManager. It imports little, because it only starts an executor and waits."""
