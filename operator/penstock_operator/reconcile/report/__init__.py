"""The parts of the status for users and programs: phase, conditions, events. The operator only reads them to compute
pauses.
"""
