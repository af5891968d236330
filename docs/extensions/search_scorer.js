// What a search shows first: functions and classes of that name, then pages for users, internals
// last. tools/check_docs.py has queries and the page that each has to find.
const asked = (new URLSearchParams(window.location.search).get("q") || "").toLowerCase();
const beginnings = asked.split(/\s+/).filter((word) => word.length > 3).map((word) => word.slice(0, 5));
var Scorer = {
    score: ([page, title, anchor, description, score, file, kind]) => {
        if (/^(internals|upstream)\//.test(page)) return score - 30;
        if (title.includes(" > ")) return score - 6; // a section, not a page
        if (beginnings.some((beginning) => title.toLowerCase().includes(beginning))) score += 3;
        if (page.startsWith("how_to")) return score + 6;
        if (description?.startsWith("Python function")) return score + 1;
        return score;
    },
    objNameMatch: 40,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
};
