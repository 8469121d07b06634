"""The kinds of statements: queries and views run on Spark in its SQL, few others run there as they are."""

from sqlglot import exp

from refused import Refused

# Objects that CREATE and DROP name with the same meaning.
OBJECTS = ("TABLE", "VIEW", "SCHEMA", "DATABASE")


def check_numbers(tokens):
    """Refuses `0x1F`, which sqlglot and Spark read as 0 with the alias x1F."""
    for one, other in zip(tokens, tokens[1:]):
        if one.token_type.name == "NUMBER" and other.start == one.end + 1 and other.token_type.name == "VAR":
            raise Refused(f"cannot run `{one.text}{other.text}` on Spark: only decimal numbers mean the same there; write it in digits")


def query_of(tree, words, ours):
    """Returns the query within a statement; None if the statement runs on Spark as it is."""
    word, kind = words[0], (tree.args.get("kind") or "").upper() if isinstance(tree, (exp.Create, exp.Drop)) else ""
    if isinstance(tree, exp.Query):
        return tree
    if isinstance(tree, exp.Copy):
        raise Refused("cannot run COPY on Spark: it writes different files; use -o FILE for the rows of a query")
    if isinstance(tree, exp.Create):
        if kind not in OBJECTS:
            raise Refused(f"cannot run CREATE {kind} on Spark: its meaning differs there; write its definition into the query")
        if kind == "TABLE" and tree.args.get("expression") is None:
            raise Refused("cannot run CREATE TABLE with columns on Spark: rows and constraints would be Spark's; use CREATE VIEW … AS")
        if kind == "VIEW":
            # Permanent views need a catalog that outlives the session.
            properties = tree.args.get("properties") or exp.Properties(expressions=[])
            if not properties.find(exp.TemporaryProperty):
                properties.append("expressions", exp.TemporaryProperty())
            tree.set("properties", properties)
        return tree.args.get("expression")
    if isinstance(tree, exp.Drop):
        if kind not in OBJECTS:
            raise Refused(f"cannot run DROP {kind} on Spark: there is nothing to drop; remove the statement")
        return None
    if word == "EXPLAIN" or (word in ("SET", "RESET") and "".join(words[1:]).startswith("SPARK.")):
        return None
    if not ours and isinstance(tree, (exp.Command, exp.Describe, exp.Set, exp.Show)):
        return None
    if word in ("SET", "RESET"):
        what = " ".join(words[:2])
        raise Refused(f"cannot run {what} on Spark: it sets the local engine; remove it, or set Spark's properties with --conf")
    if isinstance(tree, exp.DML):
        raise Refused(f"cannot run {word} on Spark: tables do not change there; use a query")
    raise Refused(f"cannot run {word} on Spark: it is a statement of the local engine; use a query, or run it without --on")
