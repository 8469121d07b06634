-- Lists, structs, maps and JSON values. harness/sql/typed.py describes the format.

-- case: nested-01
SELECT Id, Items[1] AS first, Items[-1] AS last, len(Items) AS n FROM baskets ORDER BY Id

-- case: nested-02
SELECT Id, unnest(Items) AS item FROM baskets WHERE Id = 1

-- case: nested-03
SELECT item, count(*) AS n FROM (SELECT unnest(Items) AS item FROM baskets) GROUP BY item ORDER BY item

-- case: nested-04 (reserved)
SELECT CustomerID, Address.Street AS street, Address['Zip'] AS zip FROM customers ORDER BY CustomerID

-- case: nested-05
SELECT Place.City AS c, Place.Geo.Lat AS lat FROM baskets ORDER BY Id

-- case: nested-06
SELECT Id, Place.* FROM baskets WHERE Place IS NOT NULL ORDER BY Id

-- case: nested-07
SELECT Id, list_contains(Items, 'pear') AS has_pear, 'fig' IN Items AS has_fig FROM baskets ORDER BY Id

-- case: nested-08
SELECT Id, list_transform(Amounts, x -> x * 2) AS doubled FROM baskets ORDER BY Id

-- case: nested-09
SELECT Id, list_filter(Amounts, lambda x: x > 1) AS big FROM baskets ORDER BY Id

-- case: nested-10
SELECT [x * 2 FOR x IN [1, 2, 3] IF x > 1] AS comp

-- case: nested-11
SELECT Id, list_sum(Amounts) AS s, list_max(Amounts) AS m, list_avg(Amounts) AS a FROM baskets ORDER BY Id

-- case: nested-12
SELECT Id, list_sort(Items) AS sorted, list_sort(list_distinct(Items)) AS uniq FROM baskets WHERE Id IN (1, 2)

-- case: nested-13 (reserved)
SELECT Id, Counts['pear'] AS pears, map_keys(Counts) AS k, map_values(Counts) AS v, cardinality(Counts) AS n FROM baskets ORDER BY Id

-- case: nested-14 (reserved)
SELECT {'a': 1, 'b': 'x'} AS s, struct_pack(k := 1, v := 'y') AS p

-- case: nested-15 (reserved)
SELECT MAP {'a': 1, 'b': 2} AS m, map(['x', 'y'], [10, 20]) AS n, MAP {'a': 1}['a'] AS v

-- case: nested-16 (reserved)
SELECT [1, 2, 3] || [4] AS l, list_append([1], 2) AS a, list_concat([1], [2, 3]) AS c, [1, 2, 3][2:3] AS s

-- case: nested-17
SELECT list_reduce([1, 2, 3, 4], (a, b) -> a + b) AS r, flatten([[1, 2], [3]]) AS f, range(3) AS g

-- case: nested-18
SELECT OrderID FROM orders WHERE list_contains(Tags, 'gift') ORDER BY OrderID

-- case: nested-19 (reserved)
SELECT OrderID, array_length(Tags) AS n FROM orders WHERE len(Tags) > 1 ORDER BY OrderID LIMIT 4

-- case: nested-20
SELECT unnest({'a': 1, 'b': 2})

-- case: nested-21
SELECT unnest([{'a': 1, 'b': 2}, {'a': 3, 'b': 4}], recursive := true)

-- case: nested-22
SELECT Id, struct_extract(Place, 'City') AS city, struct_insert(Place, Seen := true) AS p FROM baskets WHERE Id < 3 ORDER BY Id

-- case: nested-23
SELECT '{"a": {"b": [1, 2]}, "c": "x"}'::JSON -> '$.a.b[0]' AS n, '{"c": "x"}'::JSON ->> 'c' AS c

-- case: nested-24 (reserved)
SELECT json_extract('{"a": 5}', '$.a') AS a, json_extract_string('{"s": "t"}', '$.s') AS s, json_array_length('[1, 2, 3]') AS n

-- case: nested-25 (reserved)
SELECT to_json({'a': 1, 'b': [1, 2]}) AS j, json_object('k', 1) AS o

-- case: nested-26 (reserved)
SELECT list_position(['a', 'b'], 'b') AS p, list_reverse([1, 2, 3]) AS r, list_has_any([1, 2], [2, 9]) AS h

-- case: nested-27
SELECT Department, list(Salary ORDER BY Salary)[1:2] AS lowest FROM employees GROUP BY Department ORDER BY Department
