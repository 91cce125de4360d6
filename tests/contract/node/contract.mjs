// One check per line of output: "ok NAME" or "not ok NAME: why". MOCKER_URL is the server's base URL.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: `${process.env.MOCKER_URL}/v1`, apiKey: "key-1", maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me something nice." }];
const model = "mocker";
const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

const checks = {
  async "chat, whole and streamed, say the same"() {
    const ask = { model, messages, seed: 7, max_tokens: 30 };
    const whole = await client.chat.completions.create(ask);
    let text = "";
    let usage;
    const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
    assert.ok(whole._request_id);
  },

  async "the stream helper gives the final completion"() {
    const runner = client.chat.completions.stream({ model, messages, seed: 3, max_tokens: 20 });
    const final = await runner.finalChatCompletion();
    const whole = await client.chat.completions.create({ model, messages, seed: 3, max_tokens: 20 });
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
    assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
  },

  async "streamed tool calls are put together"() {
    const ask = { model, messages, tools, seed: 5 };
    const whole = await client.chat.completions.create(ask);
    const final = await client.chat.completions.stream(ask).finalChatCompletion();
    assert.equal(whole.choices[0].finish_reason, "tool_calls");
    assert.deepEqual(final.choices[0].message.tool_calls[0].function.arguments, whole.choices[0].message.tool_calls[0].function.arguments);
    assert.equal(final.choices[0].message.tool_calls[0].id, whole.choices[0].message.tool_calls[0].id);
    assert.equal(typeof JSON.parse(whole.choices[0].message.tool_calls[0].function.arguments).city, "string");
  },

  async "runTools calls the function and ends"() {
    let called = 0;
    const runner = client.chat.completions.runTools({
      model,
      messages,
      tools: [{ type: "function", function: { ...tools[0].function, parse: JSON.parse, function: ({ city }) => { called += 1; return `rain in ${city}`; } } }],
    });
    assert.ok(await runner.finalContent());
    assert.equal(called, 1);
  },

  async "parse gives an object of the zod schema"() {
    const City = z.object({ name: z.string(), population: z.number().int(), kind: z.enum(["town", "village"]) });
    const got = await client.chat.completions.parse({ model, messages, response_format: zodResponseFormat(City, "city") });
    City.parse(got.choices[0].message.parsed);
  },

  async "completions"() {
    const got = await client.completions.create({ model, prompt: "Once", max_tokens: 5, n: 2 });
    assert.equal(got.choices.length, 2);
  },

  async "responses, whole and streamed"() {
    const got = await client.responses.create({ model, input: "Hi", max_output_tokens: 30 });
    assert.ok(got.output_text);
    const kinds = [];
    const stream = await client.responses.create({ model, input: "Hi", max_output_tokens: 30, stream: true });
    for await (const event of stream) kinds.push(event.type);
    assert.equal(kinds[0], "response.created");
    assert.ok(["response.completed", "response.incomplete"].includes(kinds.at(-1)));
  },

  async "embeddings: base64 by default, decoded to the same numbers"() {
    const byDefault = await client.embeddings.create({ model, input: "red apples" });
    const floats = await client.embeddings.create({ model, input: "red apples", encoding_format: "float" });
    assert.equal(byDefault.data[0].embedding.length, 1536);
    byDefault.data[0].embedding.forEach((value, at) => assert.ok(Math.abs(value - floats.data[0].embedding[at]) < 1e-6));
  },

  async "models and moderations"() {
    const ids = [];
    for await (const item of client.models.list()) ids.push(item.id);
    assert.deepEqual(ids, [model]);
    const got = await client.moderations.create({ input: "I love you." });
    assert.equal(got.results[0].flagged, false);
  },

  async "errors have their class, code and param"() {
    await assert.rejects(client.chat.completions.create({ model: "none", messages }), (error) => {
      assert.ok(error instanceof OpenAI.NotFoundError);
      assert.equal(error.param, "model");
      assert.ok(error.requestID);
      return true;
    });
    await assert.rejects(client.chat.completions.create({ model, messages, max_tokens: 0 }), OpenAI.BadRequestError);
    const stranger = new OpenAI({ baseURL: client.baseURL, apiKey: "none", maxRetries: 0 });
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  },

  async "a stream that is broken off throws"() {
    const headers = { "X-Mocker-Disconnect-After": "3" };
    const ask = { model, messages, max_tokens: 20, stream: true };
    const stream = await client.chat.completions.create(ask, { headers });
    await assert.rejects(async () => {
      for await (const chunk of stream) assert.ok(chunk.id);
    });
  },

  async "an abort ends the stream"() {
    const stream = await client.chat.completions.create({ model, messages, max_tokens: 500, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      break;
    }
    assert.ok(stream.controller.signal.aborted);
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${name}: ${error.stack}`);
  }
}
process.exit(failed ? 1 : 0);
