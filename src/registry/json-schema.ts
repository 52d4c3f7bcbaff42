import { z } from 'zod';
import type { RowSchema } from '../config/index.ts';
import { problemOf } from '../errors/index.ts';

/** As much of JSON Schema as says which fields a row has and of which types they are. */
export interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
  readonly items?: JsonSchema;
  readonly prefixItems?: readonly JsonSchema[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
}

/** What a schema lets through, as JSON Schema; or why that is unknown. */
export function jsonSchemaOf(schema: RowSchema): { schema: JsonSchema } | { problem: string } {
  const standard: RowSchema['~standard'] & { readonly jsonSchema?: unknown } = schema['~standard'];
  try {
    // Its own conversion refuses dates, which a row may well have.
    if (standard.vendor === 'zod') {
      return {
        schema: z.toJSONSchema(schema as unknown as z.ZodType, { io: 'output', unrepresentable: 'any' }) as JsonSchema,
      };
    }
    const converter = standard.jsonSchema as { output(options: { target: string }): JsonSchema } | undefined;
    if (converter) return { schema: converter.output({ target: 'draft-2020-12' }) };
    return { problem: `${standard.vendor} does not tell the JSON Schema of what it checks` };
  } catch (error) {
    return { problem: problemOf(error) };
  }
}
