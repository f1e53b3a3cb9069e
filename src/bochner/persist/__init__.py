"""Model files: a JSON header and arrays in one safetensors file; loading one runs no code."""
