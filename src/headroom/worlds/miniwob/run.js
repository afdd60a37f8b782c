// Episodes: reset, act, let time pass, observe; many of them in one call.
const TICK_MS = 600; // page time that passes with every action
const SETTLE_MS = 100; // page time for what a page does right after it has loaded
const ENDLESS_MS = 1e9; // an episode ends by the agent's horizon, not by the page's clock
const ICON_WAIT_MS = 2000;

const microtasks = async () => { for (let turn = 0; turn < 4; turn++) await undefined; };

const imagesReady = async () => {
  for (let waited = 0; waited < ICON_WAIT_MS; waited += 2) {
    if ([...document.images].every((image) => image.complete)) return;
    await H.realPause(2);
  }
};

// Icons given by CSS have no size until they are loaded, and would make what is visible a matter of timing. Nothing
// tells when such an image is there, so the style sheets get the images themselves, as data, which needs no loading.
const ICON_URL = /url\("?([^")]+)"?\)/g;
const asData = async (url) => {
  const blob = await (await native.fetch(url)).blob();
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(blob);
  });
};
const embedIcons = async () => {
  const data = new Map();
  for (const sheet of document.styleSheets) {
    let rules = [];
    try { rules = sheet.cssRules; } catch (error) { continue; } // a sheet from elsewhere
    for (const { style } of rules) {
      for (const property of style ?? []) {
        const value = style.getPropertyValue(property);
        let embedded = value;
        for (const [found, address] of value.matchAll(ICON_URL)) {
          if (address.startsWith("data:")) continue;
          const url = new URL(address, sheet.href ?? location.href).href;
          if (!data.has(url)) data.set(url, await asData(url).catch(() => "data:,")); // a file that is not there
          embedded = embedded.replace(found, `url("${data.get(url)}")`);
        }
        if (embedded !== value) style.setProperty(property, embedded, style.getPropertyPriority(property));
      }
    }
  }
};

let ready = null;
let played = false; // an episode since the page was loaded or rebuilt
const preparePage = async () => {
  while (document.readyState !== "complete") await H.realPause(1);
  await H.realPause(0); // the page's own onload comes first
  // Moving pictures have no frames to move in; end states count.
  const still = document.createElement("style");
  still.textContent = "*, *::before, *::after { transition: none !important; animation: none !important; }";
  document.head.append(still);
  await embedIcons();
  await settle();
};

// What comes after the page's onload, whether by a load or by a rebuild.
const settle = async () => {
  window.core.EPISODE_MAX_TIME = ENDLESS_MS;
  // The clock and the score beside the task: no agent sees them, and drawing them costs more than many a step.
  for (const name of ["countdownTimer", "clearTimer", "updateDisplay", "reloadDisplay", "canvasClear", "canvasDrawClick"]) {
    window.core[name] = () => undefined;
  }
  if (window.jQuery?.fx) window.jQuery.fx.interval = FRAME_MS;
  H.tick(SETTLE_MS);
  await microtasks();
  ready = H.clockState();
  played = false;
};

// Start an episode on a page that may have played others.
const reset = async (seed, rebuild) => {
  if (rebuild && played) {
    H.rebuild();
    await settle();
  }
  played = true;
  H.restoreClock(ready);
  H.resetHand();
  const active = document.activeElement;
  if (active && active !== document.body) active.blur?.();
  if (window.jQuery?.timers?.length) {
    window.jQuery.timers.splice(0);
    window.jQuery.fx.stop();
  }
  if (!window.WOB_DONE_GLOBAL) window.core.endEpisode(0);
  window.jQuery?.resetUniqueId?.();
  Math.seedrandom(seed);
  window.core.startEpisodeReal();
  window.scrollTo(0, 0);
  H.tick(SETTLE_MS);
  await microtasks();
  H.releaseFocus();
  await imagesReady();
};

const play = async (job) => {
  if (job.fresh) await reset(job.seed, job.rebuild);
  let outcome = "ok";
  for (const action of job.actions) {
    if (window.WOB_DONE_GLOBAL) break;
    outcome = H.act(action);
    await microtasks();
    H.releaseFocus();
    H.tick(TICK_MS);
    await microtasks();
    H.releaseFocus();
    await imagesReady();
  }
  const done = Boolean(window.WOB_DONE_GLOBAL);
  const elements = done && !job.boxes ? [] : H.observe();
  const said = window.core.getUtterance(); // the natural-language tasks add the fields behind it
  return {
    utterance: H.collapse(said?.utterance ?? said),
    outcome,
    done,
    reward: done ? Number(window.WOB_RAW_REWARD_GLOBAL) : 0,
    elements: elements.map(({ role, name, value, states, occurrence, options }) => [role, name, value, states, occurrence, options]),
    ...(job.boxes ? { boxes: elements.map(H.boxOf) } : {}),
  };
};

// A list of jobs {seed, fresh, actions} in, a JSON list of observations (or {error}) out.
H.run = async (jobs) => {
  if (!ready) await preparePage();
  const results = [];
  for (const job of jobs) {
    try {
      results.push(await play(job));
    } catch (error) {
      results.push({ error: String(error?.stack ?? error).slice(0, 500) });
    }
  }
  return H.stringify(results);
};

Object.defineProperty(window, "__headroom", { value: Object.freeze({ run: H.run }), enumerable: false });
