// Requests to the server. The token comes in the link's fragment, is sent once, and is replaced by a cookie.

let csrf = "";

export class RequestFailed extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function answer(response) {
  let content;
  try {
    content = await response.json();
  } catch {
    content = {};
  }
  if (!response.ok) throw new RequestFailed(response.status, content.error || `the server answered ${response.status}`);
  return content;
}

export async function logIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  let session;
  if (token) {
    const headers = { Authorization: `Bearer ${token}` };
    session = await answer(await fetch("/api/login", { method: "POST", headers }));
    history.replaceState(null, "", location.pathname); // the secret does not stay in the address bar
  } else {
    session = await get("/api/session");
  }
  csrf = session.csrf;
  return session;
}

export async function get(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  try {
    return await answer(await fetch(query ? `${path}?${query}` : path));
  } catch (error) {
    if (error instanceof RequestFailed) throw error;
    throw new RequestFailed(0, "entrepot ui does not answer: is it still running?");
  }
}

export async function post(path, content) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
  try {
    return await answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(content) }));
  } catch (error) {
    if (error instanceof RequestFailed) throw error;
    throw new RequestFailed(0, "entrepot ui does not answer: is it still running?");
  }
}
