/* press.js - presses what the live part of a page has, and says what happened in #pressed. Runs before main.js. */
document.addEventListener("tn-live", () => {
    const lines = [], section = document.getElementById("live");
    const check = (what, holds) => lines.push((holds ? "pass " : "FAIL ") + what);
    const numbers = id => [...section.querySelectorAll(`#${id} data`)].map(one => Number(one.value));
    const close = (a, b) => a.length === b.length && a.every((x, i) => Math.abs(x - b[i]) <= 1e-9 * Math.max(1, Math.abs(x)));
    const named = text => [...section.querySelectorAll("button")].find(button => button.textContent === text);
    /* What a screen reader calls a button. */
    const spoken = button => button.getAttribute("aria-label")
        || [...button.childNodes].filter(child => !child.ariaHidden).map(child => child.textContent).join("");
    const ablate = (first, scores) => {
        const button = section.querySelector(first), before = numbers(scores), name = spoken(button);
        button.click();
        check("an ablation changes the prediction", !close(numbers(scores), before));
        const pressed = section.querySelector('.ablate[aria-pressed="true"]');
        check("what is ablated is marked", pressed !== null && pressed.textContent.includes("ablated"));
        check("its name stays, and has what the button shows", name.split(": ")[0] === spoken(pressed).split(": ")[0]
            && name.startsWith("ablate ") && name.split(": ")[1] !== "");
        named("restore all").click();
        check("restoring gives the prediction again", close(numbers(scores), before));
    };
    const language = () => {
        const text = section.querySelector("#live-text"), before = numbers("live-scores");
        const marks = tn.page.live.tokenizer.includes("[BOS]") ? 1 : 0;      /* tokens that begin each text */
        check("there is a prediction", before.length >= 16 && before.every(Number.isFinite));
        text.value = "Once upon a time there was a";
        text.dispatchEvent(new Event("input"));
        check("typing changes the prediction", !close(numbers("live-scores"), before));
        check("the text's tokens are shown", section.querySelectorAll("#live-tokens .token").length === 7 + marks);
        retyped(text);
        /* Another block is picked as soon as the parts are there: the paths, which come last, must come still. */
        new MutationObserver((_, observer) => {
            if (!section.querySelector(".part[data-value]")) return;
            observer.disconnect();
            section.querySelector('#live-eigen .choices [aria-checked="false"]').click();
        }).observe(section.querySelector("#live-parts"), { childList: true });
        document.addEventListener("tn-explained", () => {
            check("parts and paths follow", numbers("live-paths").length > 4 && section.querySelectorAll(".part").length === 10);
            const paths = numbers("live-paths"), vectors = numbers("live-vectors"), parts = vectors.length - 2;
            check("paths add up to the logit", near(sum(paths.slice(0, -1)), paths[paths.length - 1]));
            /* Rows of contribution, eigenvalue and activation; the rest; their sum. */
            const shares = Array.from({ length: parts / 3 }, (_, i) => vectors[3 * i]);
            check("eigenvectors spoke", parts === 24 && near(sum(shares) + vectors[parts], vectors[parts + 1]));
            const part = Number(section.querySelector(`[data-part="blocks.${checked()}.mlp"]`).dataset.value);
            check("they add up to what the MLP adds", near(part, vectors[parts + 1]));
            summed();
            check("each head has a picture", section.querySelectorAll(".small-pattern canvas").length === 8);
            positions(section.querySelectorAll("#live-tokens .said"));
            steered();
            ablate('[data-part="blocks.1.mlp"]', "live-scores");
            ablate("#live-vectors .ablate", "live-scores");
            emptied(text, marks);
        }, { once: true });
    };
    /* Buttons of tokens that stay are kept: after edits at any place they show what they show of a text that is typed anew. */
    const retyped = text => {
        const line = section.querySelector("#live-tokens"), typed = text.value;
        const type = value => { text.value = value; text.dispatchEvent(new Event("input")); };
        const shown = () => [...line.children].map(one => [one.tabIndex, one.ariaChecked, one.querySelector(".token").textContent,
            one.style.getPropertyValue("--share") > 0]).join();
        const wanted = shown(), losses = numbers("live-tokens"), scores = numbers("live-scores");
        const same = () => shown() === wanted && [...losses, ...scores].every((x, i) =>
            near(x, [...numbers("live-tokens"), ...numbers("live-scores")][i]));
        for (const value of [typed.slice(0, -1), typed.slice(0, 9) + "dog" + typed.slice(9), typed.slice(5), typed]) type(value);
        check("edited there and back", same());
        const kept = line.children[1];
        for (const value of [typed + " cat", typed]) type(value);
        check("typed on and deleted", same() && kept === line.children[1]);
        type("");
        type(typed);
        check("typed anew", same() && kept !== line.children[1]);
    };
    /* The terms add up to the logit before the soft cap that the model has; while they are outdated, to none. */
    const summed = () => {
        const cap = JSON.parse(tn.page.live.config).softcap || 0, all = "#live-parts .part, #live-parts tfoot td data";
        const terms = [...section.querySelectorAll(all)].map(one => Number(one.value || one.dataset.value)), whole = terms.pop();
        const row = () => section.querySelector("#live-parts .sum th").textContent;
        const logit = Number(section.querySelectorAll("#live-scores .best data")[1].value);
        check("the sum of the terms is named", row() === (cap ? "sum, before the soft cap" : "sum: the logit"));
        check("and is the logit, but for the cap", near(sum(terms), whole) && near(cap ? cap * Math.tanh(whole / cap) : whole, logit));
        section.querySelector('[data-part="blocks.0.mlp"]').click();
        check("outdated terms add up to no logit", row() === "sum");
        named("restore all").click();
    };
    /* Each token but the first has a loss; the table at its place has its probability. */
    const positions = said => {
        const scores = numbers("live-scores"), losses = numbers("live-tokens");
        check("each token but the first has a loss", losses.length === said.length - 1 && losses.every(loss => loss > 0));
        said[2].click();
        check("another position, another prediction", !close(numbers("live-scores"), scores));
        const rows = [...section.querySelectorAll("#live-scores tbody tr")];
        const follows = rows.find(row => row.textContent.includes("follows in the text"));
        check("its token in the text has the probability of its loss", near(Math.exp(-losses[2]),
            Number(follows.querySelector("data").value)));
        const line = section.querySelector("#live-tokens");
        line.children[2].dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true, cancelable: true }));
        check("the last position by a key", close(numbers("live-scores"), scores));
    };
    const steered = () => {
        const scores = numbers("live-scores"), slider = section.querySelector("#live-steer input[type=range]");
        slider.value = 1;
        slider.dispatchEvent(new Event("input"));
        check("steering changes the prediction", !close(numbers("live-scores").filter((_, i) => i % 3 < 2), scores));
        const bar = document.getElementById("ablated");
        check("which the page says", !bar.hidden && bar.textContent.startsWith("With ") && bar.textContent.includes("in block 1"));
        named("reset").click();
        check("and a reset takes back", bar.hidden && close(numbers("live-scores"), scores));
        section.querySelector("#live-vectors .steer").click();
        slider.value = -1;
        slider.dispatchEvent(new Event("input"));
        check("an eigenvector steers", !close(numbers("live-scores").filter((_, i) => i % 3 < 2), scores));
        named("restore all").click();
        check("restored", bar.hidden && slider.value === "0" && close(numbers("live-scores"), scores));
    };
    /* A text is typed, and emptied before it is explained. With a mark of a beginning the mark alone is explained; else nothing
       is, whatever is pressed, and what is shown is marked as old. */
    const emptied = (text, marks) => {
        let explained = 0;
        document.addEventListener("tn-explained", () => explained++);
        for (const typed of ["Once", ""]) {
            text.value = typed;
            text.dispatchEvent(new Event("input"));
        }
        if (!marks) {
            section.querySelector('#live-eigen .choices [aria-checked="false"]').click();
            section.querySelector("#live-scores button").click();
            section.querySelector("#live-parts .ablate").click();
            named("restore all").click();
        }
        const status = section.querySelector(".status").textContent, old = "#live-scores.old, #live-parts.old, #live-paths.old";
        setTimeout(() => {
            check("the text has no tokens but its mark", section.querySelectorAll("#live-tokens .token").length === marks);
            check("a mark is explained, and nothing else", explained === marks);
            check("what is shown is old without one", section.querySelectorAll(old).length === (marks ? 0 : 3));
            check("which is said", status.startsWith(marks ? "answered" : "type something"));
            check("nothing is ablated", section.querySelectorAll('.ablate[aria-pressed="true"]').length === 0);
            check("the token has its name still", !section.querySelector("#live-parts h4").textContent.includes("undefined"));
            finish();
        }, 2000);
    };
    const sum = values => values.reduce((total, x) => total + x, 0), near = (a, b) => Math.abs(a - b) <= 1e-4 * (1 + Math.abs(b));
    const checked = () => [...section.querySelectorAll("#live-eigen .choices [aria-checked]")].findIndex(one =>
        one.ariaChecked === "true");
    const images = () => {
        const pad = section.querySelector(".pad"), before = numbers("live-scores");
        const press = key => pad.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
        for (const key of [" ", "ArrowUp", " ", "ArrowUp", " ", "ArrowRight", " "]) press(key);
        const drawn = numbers("live-scores"), spoke = numbers("live-spoke");
        check("drawing with keys changes the prediction", !close(drawn, before));
        /* 10 eigenvalues with contributions and sums, and the rest: they add up to the logit of the chosen class. */
        const logit = Number(section.querySelectorAll("#live-scores .best data")[1].value);
        check("eigenvectors spoke", spoke.length === 32 && spoke.some(x => x !== 0));
        check("they add up to the logit", near(sum(spoke.filter((_, i) => i === 30 || i % 3 === 1 && i < 30)), logit) && near(spoke[31], logit)
            && !spoke.some((x, i) => i % 3 === 2 && i > 2 && !near(x, spoke[i - 3] + spoke[i - 1])));
        ablate(".ablate", "live-scores");
        named("clear").click();
        check("an empty field gives the first prediction", close(numbers("live-scores"), before));
        finish();
    };
    const finish = () => {
        document.body.append(tn.h("pre", { id: "pressed", text: `\n${lines.join("\n")}\npressed ${lines.length}\n` }));
        console.log(lines.filter(line => line.startsWith("FAIL")).concat(`pressed ${lines.length}`).join("; "));
    };
    (tn.page.live.kind === "language" ? language : images)();
});
