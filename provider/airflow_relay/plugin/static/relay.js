"use strict";

// The two buttons of an item's page. What they ask for is written in the item's log under the user's name.
document.querySelectorAll(".actions button").forEach((button) => {
  button.addEventListener("click", async () => {
    const place = button.closest(".actions");
    const action = button.dataset.action;
    const said = place.querySelector("output");
    if (action === "discard" && !window.confirm("End this item for good?")) {
      return;
    }
    try {
      const reply = await fetch(`${place.dataset.item}/${action}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        credentials: "same-origin",
        body: "{}",
      });
      const answer = await reply.json();
      said.textContent = answer.text || answer.detail;
      if (reply.ok) {
        window.location.reload();
      }
    } catch (error) {
      said.textContent = String(error);
    }
  });
});
