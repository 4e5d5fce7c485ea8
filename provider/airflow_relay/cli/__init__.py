"""``airflow relay …``: one module a noun; ``definition`` lists the commands without loading them."""
