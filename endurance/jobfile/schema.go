package jobfile

import _ "embed"

//go:embed schema.json
var schema []byte

// Schema is the JSON schema of run files, for editors.
func Schema() []byte { return append([]byte(nil), schema...) }
