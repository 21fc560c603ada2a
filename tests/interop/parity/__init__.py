"""What a script for Spark's own Kafka connector may ask, case by case, of that connector and of ours."""
