"""Between server and site: messages, their bytes, and the server's end of each transport."""
