import { z } from 'zod';
import type { RowSchema } from '../config/index.ts';
import { problemOf } from '../errors/index.ts';

/** The part of JSON Schema that describes the fields of a row and their types. */
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

/** A schema as JSON Schema, or why it cannot be converted. */
export function jsonSchemaOf(schema: RowSchema): { schema: JsonSchema } | { problem: string } {
  const standard: RowSchema['~standard'] & { readonly jsonSchema?: unknown } = schema['~standard'];
  try {
    // Zod's own conversion rejects dates, which rows often contain.
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
