{#
  Release a text column by the SQL function that the plugin registers. The ledger charges nothing for it, so the
  result stays inside the boundary and must not be published.

  Args:
    text: The text column.
    id: The column of record ids.
    function: The name of the function in profiles.yml.
#}
{% macro private_text(text, id, function="private_text") -%}
  {{ function }}({{ text }}, {{ id }})
{%- endmacro %}
