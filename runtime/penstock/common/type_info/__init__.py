"""What a value's type is.

Single values, values with parts, and types found in annotations and values. Public: `penstock.common.typeinfo`.
"""
