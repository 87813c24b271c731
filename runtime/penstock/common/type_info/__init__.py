"""Types of values.

The package has types of single values, types of composite values, and the inference from annotations and values. The
public module is `penstock.common.typeinfo`.
"""
