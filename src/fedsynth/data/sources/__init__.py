"""Where rows are: files, folders of files, databases, OMOP and FHIR; one file a source, and a registry."""
