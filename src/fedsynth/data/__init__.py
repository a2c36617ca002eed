"""From files to tensors: the public schema, tables and images, clients, and the encoding both ways."""
