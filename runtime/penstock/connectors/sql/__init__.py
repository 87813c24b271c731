"""Sinks into tables of databases: rows that are held, and the commit of a checkpoint's rows with its id in one transaction."""
