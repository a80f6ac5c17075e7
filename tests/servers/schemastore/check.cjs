// Holds documents against a schema as SchemaStore does: ajv in its full strict mode.
// Reads {"schema": ..., "documents": [...]} and writes the mistakes of each document.
const Ajv = require("ajv");
const strict = { strict: true, strictTypes: true, strictTuples: true, allErrors: true };
const ajv = new Ajv(strict);
require("ajv-formats")(ajv);
const { schema, documents } = JSON.parse(require("fs").readFileSync(0));
const validate = ajv.compile(schema);
const mistakes = documents.map((document) => (validate(document) ? [] : validate.errors));
process.stdout.write(JSON.stringify(mistakes));
