"""Satisfiable JSON Schemas of all kinds, by name; test_json_schema.py also wraps each of them."""

from __future__ import annotations

from typing import Any

STRINGS: dict[str, Any] = {
    "string": {"type": "string"},
    "string_min": {"type": "string", "minLength": 30},
    "string_max": {"type": "string", "maxLength": 2},
    "string_exact": {"type": "string", "minLength": 7, "maxLength": 7},
    "string_empty": {"type": "string", "maxLength": 0},
    "string_long": {"type": "string", "minLength": 2000},
    **{
        f"format_{name}": {"type": "string", "format": name}
        for name in (
            "date-time date time duration email idn-email hostname ipv4 ipv6 uri uri-reference iri uuid"
            " json-pointer regex byte color phone unknown-format"
        ).split()
    },
    "format_with_length": {"type": "string", "format": "email", "maxLength": 40},
    "format_without_room": {"type": "string", "format": "date-time", "maxLength": 5},
    "format_and_pattern": {"type": "string", "format": "uuid", "pattern": "^[0-9a-f]"},
}

PATTERNS: dict[str, Any] = {
    f"pattern_{number}": {"type": "string", "pattern": pattern}
    for number, pattern in enumerate(
        [
            "^[a-z]+$",
            r"^\d{3}-\d{3}-\d{4}$",
            r"^\+?[1-9]\d{1,14}$",
            "^#[0-9a-fA-F]{6}$",
            r"^[\w.+-]+@[\w-]+\.[\w.]{2,}$",
            "^(red|green|blue)$",
            "^(?:[01][0-9]|2[0-3]):[0-5][0-9]$",
            "foo",
            "^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$",
            r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d).{8,}$",
            r"^(?!\d)\w+$",
            r"^\p{Lu}\p{L}*$",
            r"^(?<year>\d{4})-(?<month>0[1-9]|1[0-2])$",
            r"^(a|b)\1$",
            r"^[^aeiou\s]{4}$",
            r"^\u00e9+$",
            r"^[\u4e00-\u9fff]{1,3}$",
            "^$",
            "^.{3,5}$",
            r"^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$",
            r"^\/[a-z]+(\/[a-z]+)*$",
            r"\bword\b",
            r"^[\[\]()]{2}$",
            r"^\S+\s\S+$",
            "^(([a-z]{1,3}){2}-){2}x$",
            r"^https?:\/\/[^\s\/]+(\/[^\s]*)?$",
        ]
    )
}
PATTERNS["pattern_with_lengths"] = {"type": "string", "pattern": "^[a-z]+$", "minLength": 40, "maxLength": 60}
PATTERNS["pattern_open_with_length"] = {"type": "string", "pattern": "[0-9]", "minLength": 25}
PATTERNS["two_patterns"] = {"allOf": [{"type": "string", "pattern": "^[a-z]{2,9}$"}, {"pattern": "^.{2,5}$"}]}

NUMBERS: dict[str, Any] = {
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "integer_bounds": {"type": "integer", "minimum": 5, "maximum": 5},
    "integer_exclusive": {"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 7},
    "integer_negative": {"type": "integer", "maximum": -1000},
    "integer_float_bounds": {"type": "integer", "minimum": 0.5, "maximum": 1.5},
    "integer_multiple": {"type": "integer", "multipleOf": 7, "minimum": 50, "maximum": 60},
    "integer_multiple_of_float": {"type": "integer", "multipleOf": 2.0, "minimum": 1},
    "integer_multiple_of_fraction": {"type": "integer", "multipleOf": 1.5, "minimum": 1},
    "integer_huge": {"type": "integer", "minimum": 10**18},
    "number_small_range": {"type": "number", "minimum": 0.001, "maximum": 0.0015},
    "number_exclusive": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "number_one_value": {"type": "number", "minimum": 2.5, "maximum": 2.5},
    "number_multiple": {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1},
    "number_multiple_half": {"type": "number", "multipleOf": 0.5},
    "number_huge": {"type": "number", "minimum": 1e300},
    "draft4_exclusive": {"type": "integer", "minimum": 3, "exclusiveMinimum": True, "maximum": 4},
}

VALUES: dict[str, Any] = {
    "anything": {},
    "true": True,
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "enum": {"enum": ["a", 1, None, True, {"x": [1]}, [2]]},
    "enum_typed": {"type": "string", "enum": ["a", "b"]},
    "enum_partly_allowed": {"type": "integer", "enum": ["a", 2, 3.5, 12], "maximum": 10},
    "const": {"const": {"a": [1, 2, {"b": None}]}},
    "const_false": {"const": False},
    "type_list": {"type": ["string", "null"]},
    "type_list_all": {"type": ["string", "number", "object", "array", "boolean", "null", "integer"]},
    "nullable": {"type": "string", "nullable": True},
    "nullable_enum": {"type": "string", "nullable": True, "enum": ["x"]},
    "no_type_min_length": {"minLength": 3},
    "no_type_minimum": {"minimum": 3},
    "with_remarks": {"type": "string", "title": "T", "description": "D", "default": 5, "examples": [1]},
}

OBJECTS: dict[str, Any] = {
    "object": {"type": "object"},
    "properties": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
    "required": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    "required_unlisted": {"type": "object", "required": ["x", "y"]},
    "closed": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "null"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "closed_empty": {"type": "object", "additionalProperties": False},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "map_min": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 6},
    "pattern_properties": {
        "type": "object",
        "patternProperties": {"^x_[a-z]+$": {"type": "integer"}},
        "additionalProperties": False,
        "minProperties": 3,
    },
    "pattern_and_listed": {
        "type": "object",
        "properties": {"x_a": {"minimum": 5}},
        "patternProperties": {"^x_": {"type": "integer", "maximum": 6}},
        "required": ["x_a"],
    },
    "min_properties": {"type": "object", "minProperties": 4},
    "max_properties": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in "abcdef"},
        "required": ["c"],
        "maxProperties": 2,
    },
    "property_names_pattern": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Z]{3}$"},
        "minProperties": 2,
    },
    "property_names_enum": {
        "type": "object",
        "propertyNames": {"enum": ["left", "right"]},
        "minProperties": 2,
    },
    "property_names_length": {
        "type": "object",
        "properties": {"toolong": True, "ok": True},
        "propertyNames": {"maxLength": 3},
    },
    "dependent_required": {
        "type": "object",
        "properties": {"card": {"type": "string"}, "address": {"type": "string"}},
        "required": ["card"],
        "dependentRequired": {"card": ["address", "zip"]},
    },
    "dependent_schemas": {
        "type": "object",
        "properties": {"kind": {"const": "x"}},
        "required": ["kind"],
        "dependentSchemas": {"kind": {"properties": {"size": {"type": "integer"}}, "required": ["size"]}},
    },
    "draft7_dependencies": {
        "type": "object",
        "required": ["a"],
        "dependencies": {"a": ["b"], "b": {"required": ["c"]}},
    },
    "unevaluated_closed": {
        "allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}],
        "type": "object",
        "unevaluatedProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {
            "user": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "emails": {
                        "type": "array",
                        "items": {"type": "string", "format": "email"},
                        "minItems": 2,
                    },
                },
                "required": ["name", "emails"],
            }
        },
        "required": ["user"],
    },
    "keywords_as_names": {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "properties": {"type": "integer"},
            "$ref": {"type": "boolean"},
            "items": {"type": "null"},
            "enum": {"type": "array"},
        },
        "required": ["type", "properties", "$ref", "items", "enum"],
        "additionalProperties": False,
    },
    "odd_names": {
        "type": "object",
        "properties": {"a/b~c %": {"type": "null"}, "": True},
        "required": ["a/b~c %", ""],
    },
}

ARRAYS: dict[str, Any] = {
    "array": {"type": "array"},
    "array_items": {"type": "array", "items": {"type": "integer"}},
    "array_min": {"type": "array", "items": {"type": "string"}, "minItems": 12},
    "array_max": {"type": "array", "maxItems": 1},
    "array_none": {"type": "array", "maxItems": 0},
    "array_unique": {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": 5},
        "uniqueItems": True,
        "minItems": 5,
    },
    "array_unique_enum": {
        "type": "array",
        "items": {"enum": ["a", "b", "c"]},
        "uniqueItems": True,
        "minItems": 3,
    },
    "prefix_items": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "minItems": 2,
    },
    "prefix_closed": {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False},
    "prefix_and_items": {
        "type": "array",
        "prefixItems": [{"const": 1}],
        "items": {"type": "null"},
        "minItems": 4,
    },
    "draft7_tuple": {
        "type": "array",
        "items": [{"type": "integer"}, {"type": "null"}],
        "additionalItems": False,
    },
    "contains": {"type": "array", "contains": {"const": "needle"}},
    "contains_typed": {
        "type": "array",
        "items": {"type": "integer"},
        "contains": {"minimum": 90},
        "minItems": 3,
    },
    "contains_twice": {"type": "array", "contains": {"type": "boolean"}, "minContains": 2},
    "contains_at_most": {
        "type": "array",
        "items": {"type": "integer"},
        "contains": {"multipleOf": 5},
        "maxContains": 1,
    },
    "unevaluated_items": {"type": "array", "prefixItems": [{"const": 1}], "unevaluatedItems": False},
    "matrix": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3},
        "minItems": 3,
    },
}

COMPOSED: dict[str, Any] = {
    "any_of": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "any_of_with_dead_ends": {"type": "string", "anyOf": [{"type": "integer"}, {"const": "ok"}, False]},
    "one_of": {"oneOf": [{"type": "integer", "multipleOf": 3}, {"type": "integer", "multipleOf": 5}]},
    "one_of_overlap": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    "one_of_tagged": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": k}, k: {"type": "string"}},
                "required": ["kind", k],
            }
            for k in ("cat", "dog")
        ]
    },
    "all_of": {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 4}]},
    "all_of_objects": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {
                "type": "object",
                "properties": {"a": {"minLength": 20}, "b": {"type": "null"}},
                "required": ["b"],
            },
        ]
    },
    "all_of_multiples": {"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}]},
    "all_of_enums": {"allOf": [{"enum": [1, 2, 3]}, {"enum": [3, 4]}]},
    "all_of_closed": {
        "allOf": [
            {"properties": {"a": {"type": "string"}, "b": True}, "additionalProperties": False},
            {"properties": {"a": {"minLength": 2}}, "required": ["a"]},
        ],
        "type": "object",
    },
    "not_type": {"not": {"type": "string"}},
    "not_enum": {"type": "integer", "minimum": 1, "maximum": 3, "not": {"enum": [1, 3]}},
    "not_required": {"type": "object", "properties": {"a": {}, "b": {}}, "not": {"required": ["a"]}},
    "not_not": {"not": {"not": {"const": [7]}}},
    "if_then_else": {
        "type": "object",
        "properties": {"country": {"enum": ["US", "FR"]}, "code": {"type": "string"}},
        "required": ["country", "code"],
        "if": {"properties": {"country": {"const": "US"}}},
        "then": {"properties": {"code": {"pattern": "^[0-9]{5}$"}}},
        "else": {"properties": {"code": {"pattern": "^F-[0-9]{5}$"}}},
    },
    "if_then": {"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}},
    "any_of_beside_properties": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "optional_as_openai_strict": {
        "type": "object",
        "properties": {
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "n": {"type": ["integer", "null"]},
        },
        "required": ["note", "n"],
        "additionalProperties": False,
    },
}

REFERENCES: dict[str, Any] = {
    "defs": {
        "$defs": {"n": {"type": "integer", "minimum": 5}},
        "type": "array",
        "items": {"$ref": "#/$defs/n"},
    },
    "definitions": {"definitions": {"n": {"type": "null"}}, "$ref": "#/definitions/n"},
    "ref_with_siblings": {
        "$defs": {"n": {"type": "integer"}},
        "$ref": "#/$defs/n",
        "minimum": 90,
        "maximum": 91,
    },
    "ref_chain": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": {"const": 9}},
        "$ref": "#/$defs/a",
    },
    "tree": {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["value", "children"],
        "additionalProperties": False,
    },
    "linked_list": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "string"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
            }
        },
        "$ref": "#/$defs/node",
    },
    "expression": {
        "$defs": {
            "expr": {"oneOf": [{"type": "number"}, {"$ref": "#/$defs/sum"}, {"$ref": "#/$defs/product"}]},
            "sum": {
                "type": "object",
                "properties": {"add": {"type": "array", "items": {"$ref": "#/$defs/expr"}, "minItems": 2}},
                "required": ["add"],
                "additionalProperties": False,
            },
            "product": {
                "type": "object",
                "properties": {"mul": {"type": "array", "items": {"$ref": "#/$defs/expr"}, "minItems": 2}},
                "required": ["mul"],
                "additionalProperties": False,
            },
        },
        "$ref": "#/$defs/expr",
    },
    "mutual": {
        "$defs": {
            "person": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "pets": {"type": "array", "items": {"$ref": "#/$defs/pet"}},
                },
                "required": ["name"],
            },
            "pet": {
                "type": "object",
                "properties": {"owner": {"$ref": "#/$defs/person"}},
                "required": ["owner"],
            },
        },
        "$ref": "#/$defs/pet",
    },
    "anchor": {
        "$defs": {"n": {"$anchor": "num", "type": "integer"}},
        "type": "array",
        "items": {"$ref": "#num"},
    },
    "id_reference": {
        "$id": "https://example.com/root.json",
        "$defs": {"n": {"$id": "n.json", "type": "integer"}},
        "type": "array",
        "items": {"$ref": "n.json"},
    },
    "root_by_id": {
        "$id": "https://example.com/root.json",
        "$defs": {"n": {"type": "null"}},
        "$ref": "https://example.com/root.json#/$defs/n",
    },
    "components": {
        "components": {"schemas": {"Pet": {"type": "string"}}},
        "$ref": "#/components/schemas/Pet",
    },
    "escaped_pointer": {"$defs": {"a/b": {"~": {"const": 1}}}, "$ref": "#/$defs/a~1b/~0"},
    "moved_items_pointer": {"type": "array", "items": [{"type": "integer"}, {"$ref": "#/items/0"}]},
    "draft7_marked": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": ["a"],
    },
    "pydantic_style": {
        "$defs": {
            "Step": {
                "properties": {"explanation": {"title": "E", "type": "string"}, "output": {"type": "string"}},
                "required": ["explanation", "output"],
                "title": "Step",
                "type": "object",
            },
            "Level": {"enum": ["low", "high"], "title": "Level", "type": "string"},
        },
        "properties": {
            "steps": {"items": {"$ref": "#/$defs/Step"}, "type": "array"},
            "level": {"allOf": [{"$ref": "#/$defs/Level"}], "default": "low"},
            "score": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        },
        "required": ["steps"],
        "title": "Answer",
        "type": "object",
    },
}

CASES: dict[str, Any] = {
    **STRINGS,
    **PATTERNS,
    **NUMBERS,
    **VALUES,
    **OBJECTS,
    **ARRAYS,
    **COMPOSED,
    **REFERENCES,
}
