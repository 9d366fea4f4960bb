"""What a person runs or schedules: one flow a file."""
