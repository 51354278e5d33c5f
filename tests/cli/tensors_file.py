"""Safetensors files as tests read and write them: {name: (type, shape, bytes)}."""
import json, random, struct


def read_tensors(path):
    """All tensors of a file, without its metadata."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def write_tensors(path, tensors):
    header, data = {}, bytearray()
    for name, (kind, shape, values) in tensors.items():
        data += bytes(-len(data) % 8)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def f32(shape, values):
    return "F32", shape, struct.pack(f"<{len(values)}f", *values)


PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
    "a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "channel"}}}}


def matrix_of_codes(module, rows, cols, packed):
    """A matrix of random 4-bit codes, 8 the zero, with a scale of 1/64: as PACKED says, or the numbers meant."""
    codes = random.Random(module).choices(range(16), k=rows * cols)
    if not packed:
        return {module + ".weight": f32([rows, cols], [(c - 8) / 64 for c in codes])}
    halves = bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2]))
    return {module + ".weight_packed": ("I32", [rows, cols // 8], halves),
            module + ".weight_scale": ("F16", [rows, 1], struct.pack("<e", 1 / 64) * rows),
            module + ".weight_shape": ("I64", [2], struct.pack("<2q", rows, cols))}
