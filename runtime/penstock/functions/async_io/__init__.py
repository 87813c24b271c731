"""Functions that request a service and process other records until the answer arrives."""
