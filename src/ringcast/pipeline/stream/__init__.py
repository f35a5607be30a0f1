"""The journal as a table of Spark, batch and streaming, and rows from Spark into a group."""
