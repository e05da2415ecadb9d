"""What a web page tries with a server, in JavaScript: all that pages of others can do without asking, and more."""

from __future__ import annotations

SCRIPT = """
const [server, subscription, name] = given;
const place = document.documentElement;
const frame = () => Object.assign(document.createElement("iframe"), {name: "frame" + Math.random()});

// Each waits until the browser is through with it, whatever came of it.
const submitted = (values, enctype) => new Promise(resolve => {
  const target = frame();
  place.append(target);
  const form = Object.assign(document.createElement("form"), {method: "post", action: server + "/", enctype});
  form.target = target.name;
  for (const [name, value] of Object.entries(values)) {
    form.append(Object.assign(document.createElement("input"), {name, value}));
  }
  place.append(form);
  target.onload = resolve;
  form.submit();
});
const sandboxed = values => new Promise(resolve => {
  const target = Object.assign(frame(), {sandbox: "allow-forms allow-scripts"});
  const inputs = Object.entries(values).map(([name, value]) => `<input name="${name}" value="${value}">`);
  const script = "<script>onload = () => setTimeout(() => document.forms[0].submit())</" + "script>";
  target.srcdoc = `<form method=post action="${server}/">${inputs.join("")}</form>${script}`;
  let loads = 0;
  target.onload = () => { if (++loads === 2) resolve(); };
  place.append(target);
});
const loaded = (kind, path) => new Promise(resolve => {
  const element = document.createElement(kind);
  element.onload = element.onerror = resolve;
  element.src = server + path;
  place.append(element);
});
const asked = (path, options) => fetch(server + path, options).then(answer => answer.text(), String);
const streamed = stream => new Promise(resolve => {
  stream.onmessage = event => { stream.close(); resolve(event.data); };
  stream.onerror = () => { stream.close(); resolve("failed"); };
});

const form = "application/x-www-form-urlencoded", purge = {Action: "PurgeQueue", QueueUrl: "orders"};
const own = `/subscriptions/${subscription}`;
const post = values => ({method: "POST", body: new URLSearchParams(values)});
const plain = body => ({method: "POST", mode: "no-cors", body});
const json = (body, headers) => ({
  method: "POST", headers: {"content-type": "application/json", ...headers}, body: JSON.stringify(body)
});
const sqs = (action, body) => json(
  body, {"content-type": "application/x-amz-json-1.0", "x-amz-target": `AmazonSQS.${action}`}
);

const attempts = {
  "form that purges": () => submitted(purge, form),
  "form with files that purges": () => submitted(purge, "multipart/form-data"),
  "form of plain text that purges": () => submitted({"Action=PurgeQueue&QueueUrl=orders&x": "y"}, "text/plain"),
  "form in a sandbox that purges": () => sandboxed(purge),
  "image that deletes": () => loaded("img", "/?Action=DeleteQueue&QueueUrl=orders"),
  "script that deletes": () => loaded("script", "/000000000000/orders?Action=DeleteQueue"),
  "frame that deletes": () => loaded("iframe", "/?Action=DeleteQueue&QueueUrl=orders"),
  "image of events": () => loaded("img", own + "/events"),
  "script of events": () => loaded("script", own + "/events"),
  "plain text that creates": () => asked("/", plain("Action=CreateQueue&QueueName=new")),
  "form that creates": () => asked("/", post({Action: "CreateQueue", QueueName: "new"})),
  "form that receives": () => asked("/", {...post({Action: "ReceiveMessage", QueueUrl: "orders"}), mode: "no-cors"}),
  "empty receive": () => asked(own + "/receive", {method: "POST", mode: "no-cors"}),
  "receive": () => asked(own + "/receive", json({count: 1, visibility_ms: 0})),
  "publication": () => asked("/publish", json({kind: subscription})),
  "SQS in JSON": () => asked("/", sqs("SendMessage", {QueueUrl: "orders", MessageBody: "from a page"})),
  "events": () => streamed(new EventSource(server + own + "/events")),
  "WebSocket": () => streamed(new WebSocket(server.replace("http", "ws") + own + "/stream")),
  "reading": () => asked("/subscriptions"),
  "unsubscription": () => asked(own, {method: "DELETE"}),
  "beacon that deletes": () => navigator.sendBeacon(server + "/", post({...purge, Action: "DeleteQueue"}).body),
};
if (name !== null) return String(await attempts[name]());
const all = Object.entries(attempts).map(async ([name, attempt]) => [name, String(await attempt())]);
return Object.fromEntries(await Promise.all(all));
"""
"""The body of an asynchronous function of the server's address, a subscription's name, and which attempt to make; null
makes all of them at once. What the page sees of the answer, or of each by its name."""
