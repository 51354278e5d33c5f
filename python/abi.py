"""Writes the ctypes side of include/vitrine.h: structs, enumerations and functions, as a Python module on stdout.

    python3 python/abi.py include/vitrine.h > vitrine/_abi.py

So no field is copied by hand. What the header needs of the C library are three headers of standard types, which stand in
STANDARD; pycparser (Debian: python3-pycparser) reads the rest. A declaration that this page cannot express ends with an
error, not with a guess.
"""
import os, subprocess, sys, tempfile

from pycparser import c_ast, c_parser

STANDARD = {
    "stdbool.h": "#define bool _Bool\n#define true 1\n#define false 0\n",
    "stddef.h": "typedef unsigned long size_t;\n#define NULL ((void *)0)\n",
    "stdint.h": "".join(f"typedef {c} {n};\n" for n, c in (
        ("int8_t", "signed char"), ("uint8_t", "unsigned char"), ("int16_t", "short"), ("uint16_t", "unsigned short"),
        ("int32_t", "int"), ("uint32_t", "unsigned int"), ("int64_t", "long"), ("uint64_t", "unsigned long"))),
}
SCALARS = {"_Bool": "c_bool", "char": "c_char", "int": "c_int", "unsigned int": "c_uint", "float": "c_float",
           "double": "c_double", "size_t": "c_size_t", "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64",
           "uint64_t": "c_uint64", "unsigned": "c_uint", "int8_t": "c_int8", "uint8_t": "c_uint8", "int16_t": "c_int16",
           "uint16_t": "c_uint16"}


def preprocess(header):
    with tempfile.TemporaryDirectory() as d:
        for name, text in STANDARD.items():
            with open(os.path.join(d, name), "w") as f:
                f.write(text)
        command = [*os.environ.get("CC", "cc").split(), "-E", "-P", "-nostdinc", "-undef", "-I", d, header]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Writer:
    def __init__(self, ast):
        self.ast, self.names, self.structs, self.callbacks = ast, {}, {}, set()
        self.values = {}  # of enumerators

    def ctype(self, node):
        """The ctypes expression of a C type; None for void."""
        if isinstance(node, c_ast.PtrDecl):
            return self.pointer(node.type)
        if isinstance(node, c_ast.ArrayDecl):
            return f"{self.ctype(node.type)} * {node.dim.value}"
        name = self.name(node)
        if name == "void":
            return None
        if name in SCALARS:
            return SCALARS[name]
        if name in self.names:
            return self.names[name]
        raise SystemExit(f"abi.py: the type '{name}' is unknown")

    def pointer(self, node):
        if isinstance(node, c_ast.FuncDecl):
            return self.function_type(node)
        name = self.name(node) if isinstance(node, c_ast.TypeDecl) else None
        if name == "char":
            # Texts may hold NUL bytes, and the caller frees them: an address, not a Python string.
            return "c_char_p" if "const" in node.quals else "c_void_p"
        if name == "void" or self.names.get(name) == "c_void_p":
            return "c_void_p"
        return f"POINTER({self.ctype(node)})"

    def function_type(self, node):
        result = self.ctype(node.type)
        arguments = [self.ctype(p.type) for p in (node.args.params if node.args else [])]
        return f"CFUNCTYPE({', '.join(str(t) for t in [result, *(a for a in arguments if a)])})"

    @staticmethod
    def name(node):
        inner = node.type
        return " ".join(inner.names) if isinstance(inner, c_ast.IdentifierType) else inner.name

    def field(self, node, names):
        """A text with a length beside it may hold NUL bytes: its address."""
        kind = self.ctype(node.type)
        return "c_void_p" if kind == "c_char_p" and node.name + "_len" in names else kind

    def typedef(self, node):
        inner = node.type
        if node.name in SCALARS:
            return
        if isinstance(inner, c_ast.PtrDecl) or isinstance(inner, c_ast.FuncDecl):
            self.names[node.name] = node.name
            function = inner.type if isinstance(inner, c_ast.PtrDecl) else inner
            yield f"{node.name} = {self.function_type(function)}"
        elif isinstance(inner.type, c_ast.Enum):
            self.names[node.name] = "c_int"
            yield from self.enum(inner.type)
        elif isinstance(inner.type, c_ast.Struct) and inner.type.decls is None:
            self.names[node.name] = "c_void_p"  # a handle: it is only ever pointed to
        elif isinstance(inner.type, c_ast.Struct):
            self.names[node.name] = node.name
            yield f"\n\nclass {node.name}(Structure):"
            yield "    _fields_ = ["
            names = [field.name for field in inner.type.decls]
            for field in inner.type.decls:
                yield f'        ("{field.name}", {self.field(field, names)}),'
            yield "    ]"
        else:
            self.names[node.name] = self.ctype(inner)

    def value(self, e):
        if isinstance(e, c_ast.BinaryOp) and e.op == "+":
            return self.value(e.left) + self.value(e.right)
        return self.values[e.name] if isinstance(e, c_ast.ID) else int(e.value, 0)

    def enum(self, node):
        value = -1
        for e in node.values.enumerators:
            value = self.value(e.value) if e.value else value + 1
            self.values[e.name] = value
            yield f"{e.name} = {value}"

    def lines(self):
        functions = []
        for node in self.ast.ext:
            if isinstance(node, c_ast.Typedef):
                yield from self.typedef(node)
            elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
                yield from self.enum(node.type)
            elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
                functions.append(node)
        yield "\n\ndef declare(library: CDLL) -> None:"
        yield '    """Gives every function of the header its types."""'
        for f in functions:
            arguments = [self.ctype(p.type) for p in (f.type.args.params if f.type.args else [])]
            yield f"    library.{f.name}.restype = {self.ctype(f.type.type)}"
            yield f"    library.{f.name}.argtypes = [{', '.join(a for a in arguments if a)}]"


def main():
    header = sys.argv[1]
    ast = c_parser.CParser().parse(preprocess(header), header)
    print(f'"""Made by python/abi.py from {os.path.basename(header)}."""')
    print("from ctypes import *  # noqa\n")
    print("\n".join(Writer(ast).lines()))


main()
