// A page as it was before its own scripts ran, without loading its libraries again.
//
// Some pages keep state between episodes: a widget its month, a variable its count. Loading them anew costs tens of
// milliseconds, nearly all of it for compiling jQuery UI. Here the body, the timers, the listeners on the roots, the
// libraries' singletons and chance go back to what they were when the document had been parsed, and the page's inline
// scripts run again.
const roots = () => [window, document, document.documentElement]; // the last is not there yet when this runs
let parsed = null;

const copyArrays = (library) => Object.entries(library ?? {}).filter(([, value]) => Array.isArray(value))
  .map(([name, value]) => [name, value.slice()]);

const jQueryEvents = (root) => {
  const kept = new Set();
  for (const handlers of Object.values(window.jQuery?._data?.(root, "events") ?? {})) {
    for (const handler of handlers) kept.add(handler);
  }
  return kept;
};

addListener.call(document, "DOMContentLoaded", () => {
  parsed = {
    body: document.body.cloneNode(true),
    scripts: [...document.querySelectorAll("script:not([src])")].map((script) => script.textContent),
    clock: H.clockState(),
    listeners: H.rootListeners.length,
    words: copyArrays(window.ui_utils),
    handlers: new Map(roots().map((root) => [root, jQueryEvents(root)])),
    datepicker: window.jQuery?.datepicker?.uuid,
  };
}, { capture: true, once: true });

const dropHandlers = (jQuery) => {
  for (const root of roots()) {
    for (const [type, handlers] of Object.entries(jQuery._data(root, "events") ?? {})) {
      for (const handler of [...handlers]) {
        if (!parsed.handlers.get(root).has(handler)) {
          jQuery.event.remove(root, [type, handler.namespace].filter(Boolean).join("."), handler.handler, handler.selector);
        }
      }
    }
  }
  jQuery(document).removeData();
};

const forgetWidgets = (jQuery) => {
  jQuery.timers?.splice(0);
  jQuery.fx?.stop();
  const picker = jQuery.datepicker;
  if (!picker?.dpDiv) return;
  picker.dpDiv.detach().empty().removeAttr("style")
    .attr("class", "ui-datepicker ui-widget ui-widget-content ui-helper-clearfix ui-corner-all");
  Object.assign(picker, { initialized: false, _curInst: null, _datepickerShowing: false, _lastInput: null,
    _inDialog: false, _keyEvent: false, _disabledInputs: [], _pos: null, uuid: parsed.datepicker });
};

H.rebuild = () => {
  const { jQuery, core } = window;
  H.restoreClock(parsed.clock);
  H.restoreChance();
  if (jQuery) {
    dropHandlers(jQuery);
    forgetWidgets(jQuery);
    jQuery.cleanData(document.body.getElementsByTagName("*"));
  }
  for (const [root, type, listener, options] of H.rootListeners.splice(parsed.listeners)) {
    removeListener.call(root, type, listener, options);
  }
  for (const [name, words] of parsed.words) window.ui_utils[name] = words.slice();
  document.body.replaceWith(parsed.body.cloneNode(true));
  Object.assign(core, { cover_div: null, EP_TIMER: null, clickTrackCtx: undefined });
  Object.assign(window, { WOB_DONE_GLOBAL: false, WOB_REWARD_GLOBAL: 0, WOB_RAW_REWARD_GLOBAL: 0 });
  for (const script of parsed.scripts) (0, eval)(script);
  window.onload?.(new Event("load"));
};
