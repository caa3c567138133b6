"""Absent for good: SGLang hooks kernel loads through this module, and skips that when the import fails."""

raise ImportError("serving/cpu loads no Triton kernels, so there is nothing to hook")
